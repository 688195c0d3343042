//! Pages that a server's log says it refused.

/// A page that a server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedPage {
    /// The file of the fork below the data directory, without the segment's number.
    pub(super) file: String,
    /// The block of the fork.
    pub(super) block: u32,
}

/// Pages in lines such as `ERROR:  invalid page in block 7 of relation base/5/16384`, whatever the log's
/// format. Since 18 the file is in quotes, and of several pages of one read the first invalid one is
/// named, in the line's detail. Each once.
pub(super) fn refused_pages(text: &str) -> Vec<RefusedPage> {
    let mut pages: Vec<RefusedPage> = Vec::new();
    for rest in text.split(MESSAGE).skip(1) {
        if let Some(page) = page_of(rest)
            && !pages.contains(&page)
        {
            pages.push(page);
        }
    }
    pages
}

/// The message of `bufmgr.c`. Other languages have other texts.
const MESSAGE: &str = "invalid page";
const ONE: &str = " in block ";
const SEVERAL: &str = "s among blocks ";
const RELATION: &str = " of relation ";
/// The detail of several; [`MESSAGE`] ends it.
const FIRST: (&str, &str) = ("Block ", " held the first ");

fn page_of(rest: &str) -> Option<RefusedPage> {
    let (block, path) = if let Some(rest) = rest.strip_prefix(ONE) {
        rest.split_once(RELATION)?
    } else {
        let (_, path) = rest.strip_prefix(SEVERAL)?.split_once(RELATION)?;
        let (_, first) = path.strip_suffix(FIRST.1)?.rsplit_once(FIRST.0)?;
        (first, path)
    };
    let block = block.parse().ok()?;
    // CSV doubles quotes, and JSON has a backslash before each.
    let path = path.trim_start_matches(['"', '\\']);
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/_".contains(c);
    let file: String = path.chars().take_while(|c| is_of_path(*c)).collect();
    is_relation_path(&file).then_some(RefusedPage { file, block })
}

/// Somebody may have put anything into a log: only what is a relation's file is asked for.
fn is_relation_path(file: &str) -> bool {
    let parts: Vec<&str> = file.split('/').collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_file = |text: &str| match text.split_once('_') {
        None => is_number(text),
        Some((number, fork)) => is_number(number) && ["fsm", "vm", "init"].contains(&fork),
    };
    match parts.as_slice() {
        ["base", database, name] => is_number(database) && is_file(name),
        ["global", name] => is_file(name),
        ["pg_tblspc", space, version, database, name] => {
            is_number(space) && version.starts_with("PG_") && is_number(database) && is_file(name)
        }
        _ => false,
    }
}

impl RefusedPage {
    /// The oid of the database; `None` for shared relations.
    pub(super) fn database(&self) -> Option<&str> {
        let parts: Vec<&str> = self.file.split('/').collect();
        match parts.as_slice() {
            ["base", database, _] | ["pg_tblspc", _, _, database, _] => Some(database),
            _ => None,
        }
    }

    /// The oid of the tablespace, 0 for the database's own.
    pub(super) fn tablespace(&self) -> &str {
        let mut parts = self.file.split('/');
        match (parts.next(), parts.next()) {
            (Some("pg_tblspc"), Some(space)) => space,
            _ => "0",
        }
    }

    /// The number in the file's name.
    pub(super) fn filenode(&self) -> &str {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        name.split('_').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, u32)]) {
        let found = refused_pages(text);
        let found: Vec<_> = found.iter().map(|s| (s.file.as_str(), s.block)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn refused_pages_are_found_in_every_format_of_a_log() {
        check(
            "2026-11-25 UTC [1] ERROR:  invalid page in block 1000 of relation base/5/16384\n\
             2026-11-25 UTC [1] ERROR:  invalid page in block 1000 of relation base/5/16384\n\
             ,\"invalid page in block 7 of relation base/5/16385_vm\",\n\
             {\"message\":\"invalid page in block 3 of relation global/1260; zeroing out page\"}\n\
             invalid page in block 9 of relation pg_tblspc/17/PG_15_202209061/5/24\n",
            &[
                ("base/5/16384", 1000),
                ("base/5/16385_vm", 7),
                ("global/1260", 3),
                ("pg_tblspc/17/PG_15_202209061/5/24", 9),
            ],
        );
    }

    #[test]
    fn messages_of_18_are_read_in_every_format_of_a_log() {
        check(
            "ERROR:  invalid page in block 10 of relation \"base/5/16384\"\n\
             ,\"invalid page in block 7 of relation \"\"base/5/16385\"\"\",\n\
             {\"message\":\"invalid page in block 3 of relation \\\"global/1260\\\"\"}\n\
             ERROR:  2 invalid pages among blocks 16..31 of relation \"base/5/16386\"\n\
             DETAIL:  Block 18 held the first invalid page.\n\
             WARNING:  zeroing out 2 invalid pages among blocks 1..2 of relation \"base/5/16387\"\n\
             DETAIL:  Block 1 held the first zeroed page.\n",
            &[("base/5/16384", 10), ("base/5/16385", 7), ("global/1260", 3), ("base/5/16386", 18)],
        );
    }

    #[test]
    fn other_paths_are_nobodys_pages() {
        for path in
            ["../etc/passwd", "base/../5", "base/5", "base/5/x", "global/pg_control", "/1/2"]
        {
            check(&format!("invalid page in block 1 of relation {path}\n"), &[]);
        }
        check("invalid page in block 99999999999 of relation base/5/1", &[]);
        check("invalid page in block ", &[]);
    }

    #[test]
    fn a_path_has_its_numbers() {
        let page = |file: &str| RefusedPage { file: file.to_owned(), block: 0 };
        let own = page("base/5/16385_vm");
        assert_eq!((own.database(), own.tablespace(), own.filenode()), (Some("5"), "0", "16385"));
        let other = page("pg_tblspc/17/PG_15_1/5/24");
        assert_eq!(
            (other.database(), other.tablespace(), other.filenode()),
            (Some("5"), "17", "24")
        );
        assert_eq!(page("global/1260").database(), None);
    }
}
