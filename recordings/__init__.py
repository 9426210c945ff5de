"""How offline data that ships with hyq was made."""
