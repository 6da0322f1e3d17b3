"""What gossip costs, and how far it scales: one module for each benchmark."""
