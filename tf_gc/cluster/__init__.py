"""How the processes of a job find each other and agree, and which devices they have."""
