//! The connection against real servers.

use std::fs;
use std::time::Duration;

use pgtoll_wire::{
    Config, Connection, Error, Parameter, Readiness, Secret, UnixEndpoint, readiness,
};

use crate::support::{Scratch, running, server, servers, set_mode};

#[test]
fn statements_and_errors_on_every_server() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let (cluster, _) = running(&mut guard, &server, &format!("pg{}", server.version.major()));
        let mut connection = cluster.connect("postgres").unwrap();
        let shown = connection.parameter("server_version").unwrap().to_owned();
        assert!(shown.starts_with(&server.version.to_string()), "{shown}");
        let error = connection.query("SELECT 1/0").unwrap_err();
        assert_eq!(error.sqlstate(), Some("22012"));
        let square = connection.prepare("SELECT $1::int * i FROM generate_series(1, 3) i").unwrap();
        assert_eq!(connection.execute_prepared(&square, &[Parameter::Integer(2)]).unwrap(), 3);
        let row = connection.query_one("SELECT 7 AS seven, NULL AS nothing").unwrap();
        assert_eq!(row.parse::<u8>("seven").unwrap(), 7);
        assert!(matches!(row.text("nothing"), Err(Error::Null { .. })));
    }
}

#[test]
fn passwords_are_exchanged_by_scram() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = running(&mut guard, &server(), "one");
    let mut connection = cluster.connect("postgres").unwrap();
    let rules = scratch.path("hba");
    fs::write(&rules, "local all postgres trust\nlocal all all scram-sha-256\n").unwrap();
    set_mode(&rules, 0o644);
    connection
        .execute(
            "SET password_encryption = 'scram-sha-256'; CREATE ROLE guest LOGIN PASSWORD 'x y'",
        )
        .unwrap();
    drop(connection);
    cluster.stop(&mut guard, pgtoll_cluster::StopMode::Fast).unwrap();
    let settings = [("hba_file".to_owned(), rules.to_string_lossy().into_owned())];
    cluster.configure(&mut guard, &settings.into()).unwrap();
    cluster.start(&mut guard).unwrap();
    let directory = cluster.data().parent().unwrap().to_owned();
    let mut config = Config::new(UnixEndpoint::new(directory, 5432), "guest", "postgres");
    config.connect_timeout = Some(Duration::from_secs(30));
    assert!(matches!(Connection::connect(&config), Err(Error::PasswordRequired)));
    config.password = Some(Secret::new("wrong"));
    assert_eq!(Connection::connect(&config).unwrap_err().sqlstate(), Some("28P01"));
    config.password = Some(Secret::new("x y"));
    let row = Connection::connect(&config).unwrap().query_one("SELECT current_user AS me").unwrap();
    assert_eq!(row.text("me").unwrap(), "guest");
}

#[test]
fn a_server_that_dies_is_told_from_one_that_is_not_there() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    let (cluster, _) = running(&mut guard, &server(), "one");
    let directory = cluster.data().parent().unwrap().to_owned();
    let config = Config::new(UnixEndpoint::new(directory, 5432), "postgres", "postgres");
    assert_eq!(readiness(&config).unwrap(), Readiness::Ready);
    let mut connection = cluster.connect("postgres").unwrap();
    cluster.kill(&mut guard).unwrap();
    assert!(matches!(connection.query("SELECT 1"), Err(Error::Closed { .. })));
    assert_eq!(readiness(&config).unwrap(), Readiness::Absent);
}
