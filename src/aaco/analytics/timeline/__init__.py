"""What devices did over time: busy and idle time, queues, launches, collectives, steady state."""
