"""The base of all other packages: this machine, its device, files, signals and errors."""
