"""Pure analysis: tables in; readings, verdicts and advice out."""
