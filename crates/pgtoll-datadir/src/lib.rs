//! A data directory as it lies: how it was left, which server runs on it, the files of its
//! relations, and the names of relations from its catalogs or from a server.
//!
//! Entry points: [`DataDirectory::open`], [`relation_files()`], [`Names::of_data_directory`],
//! [`names_of_server`], [`Attached::to`], [`Configuration::in_data_directory`]. Nothing here opens a
//! file for writing.

mod attach;
mod configuration;
mod data_directory;
mod error;
mod local;
mod names;
mod postmaster;
mod relation_files;

pub use attach::{AttachError, Attached, data_directory_of};
pub use configuration::Configuration;
pub use data_directory::{DataDirectory, backup_label_start};
pub use error::{DatadirError, read_hint};
pub use local::{LocalCluster, LocalClusters};
pub use names::{
    Database, Names, RelationName, ServerNames, TableName, Unread, control_file, databases,
    first_superuser, has_version, names_of_server,
};
pub use postmaster::{LOCK_BYTES_MAX, Postmaster};
pub use relation_files::{
    FileVisitor, RelationDir, RelationFile, RelationFileList, RelationFileName, decimal,
    is_servers_own, relation_directories, relation_files,
};
