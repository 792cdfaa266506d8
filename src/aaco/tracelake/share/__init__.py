"""A session as one sealed file that another machine takes in."""
