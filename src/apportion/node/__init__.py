"""The agent of one node. Each folder is named after what it deals with; the modules here connect them."""
