"""The page that shows a run: its facts, charts, gallery and warnings."""
