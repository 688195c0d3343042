//! Planted links and files where pgtoll writes its own.
