"""Launch files of a built deployment for the places it can run: Docker Compose, Kubernetes, Slurm."""
