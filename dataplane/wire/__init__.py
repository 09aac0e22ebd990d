"""Packet headers: conversion between bytes and values, one header per file."""
