"""Hand out labs, and collect and grade what learners hand in. Does not import MindSpore."""
