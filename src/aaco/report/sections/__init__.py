"""The sections of a report: each turns one part of an explanation into titles and rows."""
