//! Chromium without a window, driven through pipes in the protocol of its developer tools.
//!
//! There is no port and no WebSocket. Chromium ends when its pipe is closed, by whatever cause, and
//! the shell that started it then removes its profile: nothing stays behind, however a test ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running browser.
#[derive(Debug)]
pub struct Browser {
    shell: Child,
    requests: Option<ChildStdin>,
    messages: Receiver<Value>,
    last_id: u64,
    /// Events that came while an answer was awaited.
    events: Vec<Value>,
}

impl Browser {
    /// Whether there is one.
    pub fn is_installed() -> bool {
        let mut ask = shell("command -v chromium");
        ask.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// With a fresh profile in this directory.
    pub fn start(directory: &Path) -> Self {
        let mut shell = shell(START)
            .env("TMPDIR", directory)
            .args(FLAGS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let answers = shell.stdout.take().expect("stdout is piped");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in messages_of(answers) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let requests = shell.stdin.take();
        Self { shell, requests, messages, last_id: 0, events: Vec::new() }
    }

    /// A new page, empty.
    pub fn page(&mut self) -> Page<'_> {
        let target = self.call(None, "Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", &attach);
        let session = attached["sessionId"].as_str().expect("a session has a name").to_owned();
        let mut page = Page { browser: self, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), &json!({}));
        }
        page
    }

    /// Sends a request and waits for its answer.
    fn call(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut request = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        let requests = self.requests.as_mut().expect("open until the end");
        write!(requests, "{request}\0").and_then(|()| requests.flush()).expect("chromium listens");
        loop {
            let message = self.next();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn next(&mut self) -> Value {
        self.messages.recv_timeout(PATIENCE).expect("chromium answers")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of the pipe ends Chromium; the shell ends when it has cleared up.
        self.requests.take();
        let _ = self.shell.wait();
    }
}

/// A page of the browser.
#[derive(Debug)]
pub struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
}

impl Page<'_> {
    /// How wide the window is, and which colours the reader prefers: `light` or `dark`.
    pub fn look(&mut self, width: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// As on paper, of a reader who prefers these colours on a screen.
    pub fn on_paper(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let media = json!({ "media": "print", "features": features });
        self.call("Emulation.setEmulatedMedia", &media);
    }

    /// Loads a file and waits until it is there.
    pub fn load(&mut self, file: &Path) {
        let url = format!("file://{}", file.display());
        self.browser.events.clear();
        let answer = self.call("Page.navigate", &json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        let loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.browser.events.iter().any(loaded) {
            let event = self.browser.next();
            self.browser.events.push(event);
        }
    }

    /// What a script gives, as JSON; promises are awaited.
    pub fn evaluate(&mut self, script: &str) -> Value {
        let parameters =
            json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &parameters);
        assert!(answer["exceptionDetails"].is_null(), "{script:.200}: {answer}");
        answer["result"]["value"].clone()
    }

    /// What was sent over a network since the page was loaded, the page itself included.
    pub fn requests(&self) -> Vec<String> {
        let requests = self.events("Network.requestWillBeSent");
        requests.map(|request| request["request"]["url"].to_string()).collect()
    }

    /// What the page and the browser complained about since the page was loaded.
    pub fn complaints(&self) -> Vec<String> {
        let is_serious = |level: &Value| level == "error" || level == "warning";
        let console =
            self.events("Runtime.consoleAPICalled").filter(|event| is_serious(&event["type"]));
        let log =
            self.events("Log.entryAdded").filter(|event| is_serious(&event["entry"]["level"]));
        let thrown = self.events("Runtime.exceptionThrown");
        console.chain(log).chain(thrown).map(Value::to_string).collect()
    }

    fn events(&self, method: &str) -> impl Iterator<Item = &Value> {
        let of_method = self.browser.events.iter().filter(move |event| event["method"] == method);
        of_method.map(|item| &item["params"])
    }

    /// The page as PNG, from its top to this many pixels below it, or all of it; scaled.
    pub fn picture(&mut self, height: Option<u32>, scale: f64) -> Vec<u8> {
        let size =
            self.evaluate("({ width: innerWidth, height: document.documentElement.scrollHeight })");
        let height = height.map_or(size["height"].clone(), Value::from);
        let clip =
            json!({ "x": 0, "y": 0, "width": size["width"], "height": height, "scale": scale });
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let answer = self.call("Page.captureScreenshot", &parameters);
        decoded(&answer["data"])
    }

    /// The page as it is printed, as PDF.
    pub fn print(&mut self) -> Vec<u8> {
        let answer = self.call("Page.printToPDF", &json!({ "printBackground": false }));
        decoded(&answer["data"])
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        let session = self.session.clone();
        self.browser.call(Some(&session), method, parameters)
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.call("Page.close", &json!({}));
        }
    }
}

fn decoded(base64: &Value) -> Vec<u8> {
    BASE64.decode(base64.as_str().expect("data is a text")).expect("data is base64")
}

/// Chromium has its requests at descriptor 3, its answers at 4. Whatever signal the test gets, the
/// shell stays until Chromium has ended.
const START: &str = r#"
profile=$(mktemp -d) || exit 1
trap : HUP INT TERM
HOME="$profile" TMPDIR="$profile" chromium "$@" --user-data-dir="$profile" 3<&0 4>&1 </dev/null >/dev/null 2>&1
rm -rf "$profile"
"#;

/// The sandbox cannot be had by root, nor in most containers; only our own file is opened.
const FLAGS: [&str; 15] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-features=DialMediaRouteProvider,OptimizationHints,MediaRouter",
    "--hide-scrollbars",
    "--disable-lcd-text",
    "--no-first-run",
    "--remote-debugging-pipe",
];

#[expect(clippy::disallowed_methods, reason = "a test's browser is started by the test")]
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Messages end with a zero byte each.
fn messages_of(answers: impl Read) -> impl Iterator<Item = Value> {
    let mut answers = BufReader::new(answers);
    std::iter::from_fn(move || {
        let mut bytes = Vec::new();
        answers.read_until(0, &mut bytes).ok().filter(|read| *read > 0)?;
        bytes.pop();
        serde_json::from_slice(&bytes).ok()
    })
}
