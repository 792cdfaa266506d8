"""Words of a capture's account that the readers write and the trace check understands."""

NOT_TIMED = "its start or end is missing or no integer"
OUT_OF_RANGE = "its start or end is no time of this age"
NEVER_RAN = "it was never timed: its start or end is 0"
BACKWARDS = "it ends before it starts"
TOO_LONG = "it lasts longer than 104 days"
UNTIMED = (NOT_TIMED, OUT_OF_RANGE, NEVER_RAN, BACKWARDS, TOO_LONG)
NOT_READ = "missing in its table"  # in the problem that names records no reader knows
