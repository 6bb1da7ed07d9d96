"""Labels that can be used: thresholds for any classifier, decisions of a run, their reasons and their certificate."""
