"""Labs that are handed out, handed in and graded: release, sandbox, grade, report. Imports no MindSpore."""
