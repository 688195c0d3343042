//! The book as a site in `docs/book`, and its links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::{PICTURED, command, installed, root, run};

/// The version that is installed below `target` when it is not there.
const VERSION: &str = "0.5.4";
const SITE: &str = "docs/book";
/// The report that the first page links: its picture is of the same record.
const EXAMPLE: &str = "docs/book/example.html";

/// Makes the site, and fails where a link leads nowhere.
pub(crate) fn book() -> anyhow::Result<()> {
    let options = ["--no-default-features", "--features", "search"];
    let program = installed("mdbook", VERSION, &options)?;
    let site = root().join(SITE);
    if site.exists() {
        fs::remove_dir_all(&site).context("remove the older site")?;
    }
    run(command(&program.to_string_lossy()).args(["build", "docs"]))?;
    // As the tests build it: otherwise features of many crates, and so their builds, would differ.
    run(command("cargo").args(["test", "--quiet", "--workspace", "--test", "it", "--no-run"]))?;
    run(command("target/debug/pgtoll").args(["report", "--output", EXAMPLE, PICTURED[0]]))?;
    Site::read(&site)?.check()
}

/// Each page's links and the names within it, by its place below the site.
#[derive(Default)]
struct Site {
    pages: BTreeMap<PathBuf, Page>,
    /// Files that are no pages.
    others: BTreeSet<PathBuf>,
}

struct Page {
    links: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl Site {
    fn read(site: &Path) -> anyhow::Result<Self> {
        let mut found = Self::default();
        let mut directories = vec![site.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).context("list the site")? {
                let path = entry?.path();
                let place = path.strip_prefix(site)?.to_owned();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "html") {
                    found.pages.insert(place, Page::read(&fs::read_to_string(&path)?));
                } else {
                    found.others.insert(place);
                }
            }
        }
        Ok(found)
    }

    fn check(&self) -> anyhow::Result<()> {
        let links = self.pages.iter().flat_map(|(place, page)| {
            page.links.iter().filter(|link| !self.leads(place, link)).map(move |link| (place, link))
        });
        let broken: Vec<String> =
            links.map(|(place, link)| format!("{}: {link}", place.display())).collect();
        if !broken.is_empty() {
            bail!("links of the book that lead nowhere:\n{}", broken.join("\n"));
        }
        Ok(())
    }

    /// True of links to other sites, which are not followed.
    fn leads(&self, place: &Path, link: &str) -> bool {
        if ["http:", "https:", "mailto:", "data:"].iter().any(|scheme| link.starts_with(scheme)) {
            return true;
        }
        let (path, name) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => place.to_owned(),
            path => joined(place, path),
        };
        match self.pages.get(&target) {
            Some(page) => name.is_empty() || page.names.contains(name),
            None => self.others.contains(&target),
        }
    }
}

impl Page {
    /// Attributes as mdbook and pgtoll write them, in double quotes.
    fn read(text: &str) -> Self {
        let values = |attribute: &str| -> Vec<&str> {
            let behind = text.split(attribute).skip(1);
            behind.filter_map(|rest| rest.split('"').next()).collect()
        };
        let links = [" href=\"", " src=\"", " srcset=\""].into_iter().flat_map(values);
        let names = values(" id=\"");
        Self {
            links: links.map(str::to_owned).collect(),
            names: names.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// A relative link's place below the site.
fn joined(place: &Path, link: &str) -> PathBuf {
    let mut target = place.parent().map_or_else(PathBuf::new, Path::to_owned);
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                target.pop();
            }
            part => target.push(part),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_pages_and_names_are_told_from_those_that_lead_somewhere() {
        let directory = tempfile::tempdir().unwrap();
        let site = directory.path();
        fs::create_dir(site.join("deep")).unwrap();
        let page = "<h2 id=\"here\"> <a href=\"#here\"> <a href=\"deep/other.html#there\">";
        fs::write(site.join("index.html"), page).unwrap();
        let other = "<p id=\"there\"> <img src=\"../a.png\"> <a href=\"https://example.org/x\">";
        fs::write(site.join("deep/other.html"), other).unwrap();
        fs::write(site.join("a.png"), "").unwrap();
        let found = Site::read(site).unwrap();
        found.check().unwrap();
        for broken in ["#gone", "gone.html", "deep/other.html#here", "a.jpg"] {
            assert!(!found.leads(Path::new("index.html"), broken), "{broken}");
        }
        fs::remove_file(site.join("a.png")).unwrap();
        let error = Site::read(site).unwrap().check().unwrap_err().to_string();
        assert!(error.ends_with("\ndeep/other.html: ../a.png"), "{error}");
    }
}
