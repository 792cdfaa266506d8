"""How fast an endpoint of a language model answers: definitions over the tables of a client."""
