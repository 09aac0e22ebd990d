"""Named content in switches."""
