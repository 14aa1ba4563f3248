"""What a scheduler does while another one leads."""
