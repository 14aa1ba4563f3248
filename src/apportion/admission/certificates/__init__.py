"""The certificates of the webhook: the Secret that holds them, their renewal, and how API servers trust them."""
