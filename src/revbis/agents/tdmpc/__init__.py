"""TD-MPC: planning in a learned latent space. `settings` can be read without torch."""
