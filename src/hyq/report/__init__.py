"""Tables and pictures, made from records alone."""
