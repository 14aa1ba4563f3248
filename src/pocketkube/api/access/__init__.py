"""Who a caller is and what it may do: tokens, impersonation, role-based access control, access reviews."""
