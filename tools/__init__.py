"""What makes and checks the pages: the site's hooks, generated tables, records that pages name."""
