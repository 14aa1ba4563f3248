"""The agent of one node. Its folders are named after whom they face; what ties them together is here."""
