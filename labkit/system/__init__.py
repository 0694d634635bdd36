"""What everything stands on: this machine, its device, files, signals and errors."""
