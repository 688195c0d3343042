//! Providers of managed servers: their marks, and how they differ from PostgreSQL.
//!
//! No such server was at hand: facts are from the documents that each one names.

/// A provider of managed servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Amazon RDS for PostgreSQL.
    AmazonRds,
    /// Amazon Aurora PostgreSQL.
    AmazonAurora,
    /// Cloud SQL for PostgreSQL.
    CloudSql,
    /// `AlloyDB` for PostgreSQL.
    AlloyDb,
    /// Azure Database for PostgreSQL, flexible server.
    Azure,
    /// Neon.
    Neon,
}

/// How a provider's servers differ from PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderFacts {
    /// Its name.
    pub name: &'static str,
    /// The prefix of its settings, with the point.
    pub prefix: &'static str,
    /// A setting that its servers have.
    pub setting: &'static str,
    /// Pages and WAL are kept by a storage service, not by the server in files: checksums, full-page
    /// images, checkpoints and the flush of WAL are not PostgreSQL's.
    pub has_own_storage: bool,
    /// A standby that the server's views do not show.
    pub hidden_standby: Option<&'static str>,
    /// Backups, which no view shows.
    pub backups: &'static str,
    /// The source of these facts, and its date where it has one.
    pub source: &'static str,
}

/// The function by which Aurora differs from RDS: both have the settings of RDS.
pub const AURORA_FUNCTION: &str = "aurora_version";

impl Provider {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::AmazonRds,
        Self::AmazonAurora,
        Self::CloudSql,
        Self::AlloyDb,
        Self::Azure,
        Self::Neon,
    ];

    /// The provider of a server that has settings with these prefixes, and Aurora's function or not.
    pub fn detect<'a>(
        prefixes: impl IntoIterator<Item = &'a str>,
        has_aurora_function: bool,
    ) -> Option<Self> {
        let prefixes: Vec<&str> = prefixes.into_iter().collect();
        // This provider may have settings of Cloud SQL, too.
        let order = [Self::AlloyDb, Self::CloudSql, Self::Azure, Self::Neon, Self::AmazonRds];
        let found = order.into_iter().find(|provider| prefixes.contains(&provider.facts().prefix));
        match found {
            Some(Self::AmazonRds) if has_aurora_function => Some(Self::AmazonAurora),
            found => found,
        }
    }

    /// The provider with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.facts().name == name)
    }

    /// Its differences.
    pub const fn facts(self) -> &'static ProviderFacts {
        match self {
            Self::AmazonRds => &ProviderFacts {
                name: "Amazon RDS",
                prefix: "rds.",
                setting: "rds.extensions",
                has_own_storage: false,
                hidden_standby: Some("a Multi-AZ standby, copied by blocks"),
                backups: "snapshots and WAL",
                source: "thebuild.com/blog/2026/04/28/managed-postgres-examined-amazon-rds-for-postgresql",
            },
            Self::AmazonAurora => &ProviderFacts {
                name: "Amazon Aurora",
                prefix: "rds.",
                setting: "rds.extensions",
                has_own_storage: true,
                hidden_standby: Some("six copies of the volume in three zones"),
                backups: "continuous",
                source: "thebuild.com/blog/2026/05/05/managed-postgres-examined-amazon-aurora-postgresql",
            },
            Self::CloudSql => &ProviderFacts {
                name: "Cloud SQL",
                prefix: "cloudsql.",
                setting: "cloudsql.iam_authentication",
                has_own_storage: false,
                hidden_standby: Some("the second zone of a regional disk"),
                backups: "snapshots and WAL",
                source: "thebuild.com/blog/2026/05/12/managed-postgres-examined-google-cloud-sql-for-postgresql",
            },
            Self::AlloyDb => &ProviderFacts {
                name: "AlloyDB",
                prefix: "alloydb.",
                setting: "alloydb.iam_authentication",
                has_own_storage: true,
                hidden_standby: Some("blocks of its storage service in several zones"),
                backups: "continuous",
                source: "cloud.google.com/blog/products/databases/alloydb-for-postgresql-intelligent-scalable-storage, 2022-05-11",
            },
            Self::Azure => &ProviderFacts {
                name: "Azure Database",
                prefix: "azure.",
                setting: "azure.extensions",
                has_own_storage: false,
                hidden_standby: None,
                backups: "snapshots and WAL",
                source: "thebuild.com/blog/managed-postgres-examined-azure-database-for-postgresql-flexible-server",
            },
            Self::Neon => &ProviderFacts {
                name: "Neon",
                prefix: "neon.",
                setting: "neon.timeline_id",
                has_own_storage: true,
                hidden_standby: Some("WAL on safekeepers"),
                backups: "pages in an object store",
                source: "neon.tech/docs/reference/compatibility",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_told_by_their_settings() {
        for (prefixes, has_function, expected) in [
            (&["rds."][..], false, Some(Provider::AmazonRds)),
            (&["rds.", "apg_plan_mgmt."], true, Some(Provider::AmazonAurora)),
            (&["cloudsql.", "alloydb."], false, Some(Provider::AlloyDb)),
            (&["cloudsql."], false, Some(Provider::CloudSql)),
            (&["azure."], false, Some(Provider::Azure)),
            (&["neon."], false, Some(Provider::Neon)),
            (&["pg_stat_statements."], true, None),
        ] {
            assert_eq!(Provider::detect(prefixes.iter().copied(), has_function), expected);
        }
        for provider in Provider::ALL {
            assert_eq!(Provider::named(provider.facts().name), Some(provider));
        }
    }
}
