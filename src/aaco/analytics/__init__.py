"""Pure judgement: tables in, readings and verdicts out."""
