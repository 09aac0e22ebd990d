"""The readable interpreter of bmv2 programs: the reference that every faster pipeline is compared with."""
