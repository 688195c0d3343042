//! Files as objects.

use std::fs;
use std::io::Read as _;

use pgtoll_store::{Store, StoreError, StoreUrl};
use pgtoll_system::Interrupt;

#[test]
fn files_are_listed_read_and_written_under_a_condition() {
    let place = tempfile::tempdir().unwrap();
    let prefix = StoreUrl::of_path(place.path()).unwrap();
    let store = Store::open(&prefix, &Interrupt::new()).unwrap();
    assert!(store.list(&prefix.join("none")).unwrap().is_empty());
    assert!(store.put_new(&prefix.join("a/b/1.json"), b"{}").unwrap());
    assert!(!store.put_new(&prefix.join("a/b/1.json"), b"[]").unwrap());
    store.put(&prefix.join("a/2.json"), b"[1]").unwrap();
    let listed = store.list(&prefix).unwrap();
    let names: Vec<&str> = listed.iter().map(|listed| prefix.below(&listed.url).unwrap()).collect();
    assert_eq!(names, ["a/2.json", "a/b/1.json"]);
    assert_eq!(store.read(&prefix.join("a/b/1.json"), 10).unwrap(), b"{}");
    let missing = store.head(&prefix.join("a/3.json")).unwrap_err();
    assert!(matches!(missing, StoreError::NotFound { .. }), "{missing}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let prefix = StoreUrl::of_path(place.path()).unwrap();
    let store = Store::open(&prefix, &Interrupt::new()).unwrap();
    let at = prefix.join("base.tar");
    store.put(&at, &[1; 4096]).unwrap();
    let object = store.head(&at).unwrap();
    let mut reader = store.reader(&object).unwrap();
    reader.read_exact(&mut [0; 10]).unwrap();
    fs::write(at.path().unwrap(), [2; 100]).unwrap();
    let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
    assert!(error.to_string().ends_with("replaced or changed while it was read"), "{error}");
    let error = store.reader(&object).unwrap_err();
    assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
}
