"""Object storage and training jobs in the cloud: OBS (or any S3 server), and ModelArts. Imports no MindSpore."""
