"""What everything else builds on: this machine, its device, files, signals and errors."""
