//! SQL for damaged relations: names in quotes, and statements that read round damaged blocks.

use pgtoll_datadir::RelationName;
use pgtoll_format::is_unprintable;

/// A relation's name with its schema, as SQL takes it.
pub(super) fn qualified(name: &RelationName) -> String {
    with_schema(name.schema.as_deref(), &name.relation)
}

pub(super) fn with_schema(schema: Option<&str>, relation: &str) -> String {
    match schema {
        Some(schema) => format!("{}.{}", identifier(schema), identifier(relation)),
        None => identifier(relation),
    }
}

/// As SQL takes it: plain where that is the same name, else in quotes. What a terminal would obey is
/// in escapes (`U&"…"`).
pub(super) fn identifier(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if begins && name.chars().all(is_plain) && KEYWORDS.binary_search(&name).is_err() {
        return name.to_owned();
    }
    if !name.contains(is_unprintable) {
        return format!("\"{}\"", name.replace('"', "\"\""));
    }
    format!("U&\"{}\"", escaped(&name.replace('"', "\"\"")))
}

/// A relation's name as a `regclass` takes it: in single quotes, what a terminal would obey in escapes
/// (`U&'…'`).
pub(super) fn regclass(name: &RelationName) -> String {
    let quoted = |name: &str| {
        let is_plain = identifier(name) == name;
        if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
    };
    let relation = quoted(&name.relation);
    let text = match name.schema.as_deref() {
        Some(schema) => format!("{}.{relation}", quoted(schema)),
        None => relation,
    };
    let text = text.replace('\'', "''");
    if !text.contains(|c| is_unprintable(c) || c == '\\') {
        return format!("'{text}'");
    }
    format!("U&'{}'", escaped(&text))
}

/// With what a terminal would obey, and backslashes, in the escapes of `U&`.
fn escaped(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '\\' => "\\\\".to_owned(),
        c if is_unprintable(c) => match u32::from(c) {
            code @ ..=0xFFFF => format!("\\{code:04X}"),
            code => format!("\\+{code:06X}"),
        },
        c => c.to_string(),
    });
    escaped.collect()
}

/// The table that saved rows go to: beside the damaged one.
pub(super) fn saved(name: &RelationName) -> String {
    let mut end = name.relation.len().min(NAME_BYTES_MAX - SAVED.len());
    while !name.relation.is_char_boundary(end) {
        end -= 1;
    }
    with_schema(name.schema.as_deref(), &format!("{}{SAVED}", &name.relation[..end]))
}

const SAVED: &str = "_saved";
/// `NAMEDATALEN` less the byte behind.
const NAME_BYTES_MAX: usize = 63;

/// Blocks, from the first to the last.
pub(super) type Range = (u32, u32);

/// All rows that a sequential scan finds, into a table of their own.
pub(super) fn save_all(name: &RelationName) -> String {
    format!("CREATE TABLE {} AS\nSELECT * FROM ONLY {};", saved(name), qualified(name))
}

/// The rows beside these blocks, which follow each other, into a table of their own. Only for servers
/// that scan ranges of TIDs (14 and later): a sequential scan would read the damaged blocks, so none
/// may be chosen.
pub(super) fn save_beside(name: &RelationName, damaged: &[Range]) -> String {
    let table = qualified(name);
    let begins = std::iter::once(None).chain(damaged.iter().map(|(_, last)| Some(*last)));
    let ends = damaged.iter().map(|(first, _)| Some(*first)).chain([None]);
    let parts = begins.zip(ends).filter_map(|(last, first)| {
        let behind = last.map(|last| format!("ctid >= '({},0)'", u64::from(last) + 1));
        let before = first.map(|first| format!("ctid < '({first},0)'"));
        // Nothing is before the first block, nor behind the last one that can be.
        if first == Some(0) || last == Some(u32::MAX - 1) {
            return None;
        }
        let condition = behind.into_iter().chain(before).collect::<Vec<_>>().join(" AND ");
        Some(format!("SELECT * FROM ONLY {table}\n  WHERE {condition}"))
    });
    let parts = parts.collect::<Vec<_>>().join("\nUNION ALL ");
    format!(
        "SET enable_seqscan = off;\nSET enable_indexscan = off;\nCREATE TABLE {} AS\n{parts};",
        saved(name)
    )
}

/// The rows of all blocks that the server reads, block by block, into a table of their own: each by
/// the TIDs that a block can have, so that nothing else is read. A block that the server refuses is
/// passed over with a warning.
pub(super) fn save_block_by_block(name: &RelationName, block_bytes: u32) -> String {
    let table = qualified(name);
    let saved = saved(name);
    let rows = rows_of_block(block_bytes);
    let create = format!("CREATE TABLE {saved} AS\n    SELECT * FROM ONLY {table} WITH NO DATA;");
    save_piece_by_piece(
        &format!("PERFORM set_config('enable_seqscan', 'off', true);\n  {create}"),
        &format!(
            "FOR piece IN SELECT generate_series(0,\n    pg_relation_size({}) / {block_bytes} - 1)",
            name.oid
        ),
        &format!(
            "INSERT INTO {saved}\n      SELECT * FROM ONLY {table}\n      WHERE ctid = ANY \
             (ARRAY(SELECT\n      format('(%s,%s)', piece, i)::tid\n      FROM generate_series(1, \
             {rows}) i));"
        ),
        "block",
    )
}

/// The rows of a table whose long values can be read, row by row, into a table of their own. A row
/// that the server refuses is passed over with a warning.
pub(super) fn save_row_by_row(schema: Option<&str>, relation: &str) -> String {
    let table = RelationName {
        oid: 0,
        database: None,
        schema: schema.map(Into::into),
        relation: relation.to_owned(),
        kind: pgtoll_format::catalog::RelationKind::Table,
        persistence: pgtoll_format::catalog::Persistence::Permanent,
        of: None,
    };
    let saved = saved(&table);
    let table = qualified(&table);
    save_piece_by_piece(
        &format!("CREATE TABLE {saved} AS\n    SELECT * FROM ONLY {table} WITH NO DATA;"),
        &format!("FOR piece IN SELECT ctid FROM ONLY {table}"),
        &format!(
            "INSERT INTO {saved}\n      SELECT * FROM ONLY {table}\n      WHERE ctid = piece;"
        ),
        "row",
    )
}

/// Nothing of what a loop reads is lost with what it cannot read: each piece is a subtransaction.
fn save_piece_by_piece(create: &str, each: &str, insert: &str, label: &str) -> String {
    let kind = if label == "row" { "tid" } else { "bigint" };
    let body = format!(
        "#variable_conflict use_variable\nDECLARE piece {kind};\nBEGIN\n  {create}\n  {each}\n  \
         LOOP\n    BEGIN\n      {insert}\n    EXCEPTION WHEN data_corrupted OR index_corrupted\n      \
         OR io_error OR internal_error THEN\n      RAISE WARNING '{label} % is left out: %', piece, \
         SQLERRM;\n    END;\n  END LOOP;\nEND"
    );
    let mut tag = "$save$".to_owned();
    while body.contains(&tag) {
        tag.insert(tag.len() - 1, '_');
    }
    format!("DO {tag}\n{body}\n{tag};")
}

/// The rows on these blocks, by the TIDs that they can have.
pub(super) fn rows_on(name: &RelationName, (first, last): Range, block_bytes: u32) -> String {
    format!(
        "SELECT ctid, * FROM ONLY {}\nWHERE ctid = ANY (ARRAY(SELECT format('(%s,%s)', b, i)::tid\n\
         FROM generate_series({first}, {last}) b, generate_series(1, {}) i));",
        qualified(name),
        rows_of_block(block_bytes)
    )
}

/// `MaxHeapTuplesPerPage`: a page header, then for each row a line pointer and a row's header.
fn rows_of_block(block_bytes: u32) -> u32 {
    block_bytes.saturating_sub(24) / 28
}

/// Words that no relation can have as a name without quotes, or not everywhere: all words that are not plain
/// (`pg_get_keywords()`, `catcode <> 'U'`) in one of PostgreSQL 15, 17 and 18. Sorted.
const KEYWORDS: [&str; 164] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "json",
    "json_array",
    "json_arrayagg",
    "json_exists",
    "json_object",
    "json_objectagg",
    "json_query",
    "json_scalar",
    "json_serialize",
    "json_table",
    "json_value",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "merge_action",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What PostgreSQL makes of an identifier.
    fn parsed(sql: &str) -> Option<String> {
        let Some(quoted) = sql.strip_suffix('"') else {
            return Some(sql.to_ascii_lowercase());
        };
        let (quoted, is_escaped) = match quoted.strip_prefix("U&\"") {
            Some(quoted) => (quoted, true),
            None => (quoted.strip_prefix('"')?, false),
        };
        let mut name = String::new();
        let mut rest = quoted.chars();
        while let Some(c) = rest.next() {
            match c {
                '"' => name.push(rest.next().filter(|c| *c == '"')?),
                '\\' if is_escaped => {
                    let mut next = rest.next()?;
                    if next == '\\' {
                        name.push('\\');
                        continue;
                    }
                    let mut digits = String::new();
                    let count = if next == '+' { 6 } else { 4 };
                    if next == '+' {
                        next = rest.next()?;
                    }
                    digits.push(next);
                    digits.extend(rest.by_ref().take(count - 1));
                    name.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                c => name.push(c),
            }
        }
        Some(name)
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_the_name(name in "[^\0]+") {
            let sql = identifier(&name);
            prop_assert!(!sql.contains(is_unprintable), "{sql}");
            prop_assert_eq!(parsed(&sql).unwrap(), name);
        }

        #[test]
        fn saved_rows_have_a_name_that_is_not_cut(name in "[^\0]{1,63}") {
            let relation_name = RelationName { relation: name, ..table("x") };
            let name = parsed(saved(&relation_name).strip_prefix("public.").unwrap()).unwrap();
            prop_assert!(name.len() <= NAME_BYTES_MAX && name.ends_with(SAVED), "{name}");
        }
    }

    fn table(relation: &str) -> RelationName {
        RelationName {
            oid: 16390,
            database: Some("shop".into()),
            schema: Some("public".into()),
            relation: relation.to_owned(),
            kind: pgtoll_format::catalog::RelationKind::Table,
            persistence: pgtoll_format::catalog::Persistence::Permanent,
            of: None,
        }
    }

    #[test]
    fn identifiers_are_quoted_where_they_have_to_be() {
        let check = |name: &str, sql: &str| assert_eq!(identifier(name), sql);
        check("orders", "orders");
        check("_1", "_1");
        check("1st", "\"1st\"");
        check("Orders", "\"Orders\"");
        check("Größe", "\"Größe\"");
        check("select", "\"select\"");
        check("a\"b\\c", "\"a\"\"b\\c\"");
        check("caf\t\\\"", "U&\"caf\\0009\\\\\"\"\"");
        check("\u{1b}[31m", "U&\"\\001B[31m\"");
        check("\u{202e}x\u{e0041}", "U&\"\\202Ex\\+0E0041\"");
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn ranges_beside_damaged_blocks_are_read_one_by_one() {
        let parts = |damaged: &[Range]| {
            let sql = save_beside(&table("orders"), damaged);
            let (_, parts) = sql.split_once("public.orders_saved AS\n").unwrap();
            let parts = parts.trim_end_matches(';').split("\nUNION ALL ");
            let prefix = "SELECT * FROM ONLY public.orders\n  WHERE ";
            parts.map(|part| part.strip_prefix(prefix).unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(parts(&[(100, 100)]), ["ctid < '(100,0)'", "ctid >= '(101,0)'"]);
        assert_eq!(parts(&[(0, 2)]), ["ctid >= '(3,0)'"]);
        assert_eq!(
            parts(&[(5, 5), (9, 10)]),
            ["ctid < '(5,0)'", "ctid >= '(6,0)' AND ctid < '(9,0)'", "ctid >= '(11,0)'"]
        );
    }

    #[test]
    fn a_name_does_not_end_the_statement_that_it_is_in() {
        let sql = save_block_by_block(&table("a$save$b$save_$"), 8192);
        assert!(sql.starts_with("DO $save__$\n") && sql.ends_with("\n$save__$;"), "{sql}");
        assert_eq!(sql.matches("$save__$").count(), 2);
    }
}
