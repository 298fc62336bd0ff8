"""Where experience comes from: procedural tasks and the rollouts over them."""
