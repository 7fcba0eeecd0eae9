"""The server on this machine: started, watched and ended, natively or in a container."""
