"""Images of your own: a folder, its few labels, and whatever is wrong with either."""
