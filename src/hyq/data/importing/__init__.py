"""From the files that people have to a dataset."""
