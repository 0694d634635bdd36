"""Training, from a recipe to a Run.

recipes, schema: what to train. build: its data, network, loss, optimizer. loop: prepare, fit, finish; with callbacks
and checkpoint. runs, provenance: the folder that holds the results. evaluation, export, compare: use that
folder. commands, run_commands: the command line.
"""
