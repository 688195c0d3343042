//! Servers that lie, stay silent, or never end.
