//! A server of objects that speaks as much of S3's protocol as reading backups and writing results needs,
//! and fails when it is told to. It is no proof of how a real one behaves.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How requests for objects fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFault {
    /// 503, with the code `SlowDown`.
    Throttle,
    /// 403, with the code `AccessDenied`.
    Deny,
    /// 400, with the code `ExpiredToken`.
    Expire,
    /// The connection ends in the middle of the body.
    Cut,
    /// No such object (404).
    Miss,
}

/// Content of an object that is made when it is asked for, so that it may be of any length.
pub trait MadeObject: Debug + Send + Sync {
    /// Its length.
    fn bytes(&self) -> u64;
    /// Writes a range of it, the same bytes each time.
    fn write(&self, range: Range<u64>, to: &mut dyn Write) -> io::Result<()>;
}

impl MadeObject for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn write(&self, range: Range<u64>, to: &mut dyn Write) -> io::Result<()> {
        let place = |at: u64| usize::try_from(at).unwrap();
        to.write_all(&self[place(range.start)..place(range.end)])
    }
}

/// A server on a port of its own, until it is dropped.
#[derive(Debug)]
pub struct ObjectServer {
    address: SocketAddr,
    has_tls: bool,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: Mutex<BTreeMap<String, Stored>>,
    /// What the next GETs of objects fail with.
    faults: Mutex<Vec<ObjectFault>>,
    /// Method and path of each request.
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    /// How long each answer takes at least.
    delay: Mutex<Duration>,
    is_stopped: AtomicBool,
}

#[derive(Clone, Debug)]
struct Stored {
    content: Arc<dyn MadeObject>,
    version: u64,
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl ObjectServer {
    /// A server without objects. Every bucket exists.
    pub fn start() -> Self {
        Self::serve(None)
    }

    /// The same behind TLS, with a certificate and its key (PEM). Clients call it `localhost`.
    pub fn start_with_tls(certificate: &str, key: &str) -> Self {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Self::serve(Some(Arc::new(config.with_single_cert(vec![certificate], key).unwrap())))
    }

    fn serve(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let has_tls = tls.is_some();
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let state = Arc::clone(&of_thread);
                let stream = stream.unwrap();
                state.connections.fetch_add(1, Ordering::SeqCst);
                // Head and body are written one after the other.
                stream.set_nodelay(true).unwrap();
                let tls = tls.as_ref().map(|tls| ServerConnection::new(Arc::clone(tls)).unwrap());
                thread::spawn(move || match tls {
                    Some(tls) => state.answer_all(StreamOwned::new(tls, stream)),
                    None => state.answer_all(stream),
                });
            }
        });
        Self { address, has_tls, state }
    }

    /// What a client needs in its environment.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", (!self.has_tls).to_string()),
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// The same for clients of Google Cloud Storage.
    pub fn environment_of_gcs(&self) -> [(&'static str, String); 2] {
        let account = format!(
            r#"{{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true,
                "gcs_base_url": "{}"}}"#,
            self.endpoint()
        );
        [("GOOGLE_SERVICE_ACCOUNT_KEY", account), ("GOOGLE_ALLOW_HTTP", "true".to_owned())]
    }

    /// The same for clients of Azure Blob Storage.
    pub fn environment_of_azure(&self) -> [(&'static str, String); 4] {
        [
            ("AZURE_STORAGE_ENDPOINT", self.endpoint()),
            ("AZURE_ALLOW_HTTP", "true".to_owned()),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account".to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0".to_owned()),
        ]
    }

    /// Its URL, without a bucket.
    pub fn endpoint(&self) -> String {
        let port = self.address.port();
        if self.has_tls {
            format!("https://localhost:{port}")
        } else {
            format!("http://127.0.0.1:{port}")
        }
    }

    /// Puts an object at `BUCKET/KEY`, in place of what is there.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.state.put(path, bytes.to_vec());
    }

    /// Puts an object whose content is made when it is asked for.
    pub fn put_made(&self, path: &str, content: Arc<dyn MadeObject>) {
        self.state.put_made(path, content);
    }

    /// The object at `BUCKET/KEY`.
    pub fn object(&self, path: &str) -> Option<Vec<u8>> {
        let content = Arc::clone(&self.state.objects.lock().unwrap().get(path)?.content);
        let mut bytes = Vec::new();
        content.write(0..content.bytes(), &mut bytes).unwrap();
        Some(bytes)
    }

    /// Lets each answer take so long, as one of a server far away does.
    pub fn delay(&self, delay: Duration) {
        *self.state.delay.lock().unwrap() = delay;
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) {
        self.state.objects.lock().unwrap().remove(path);
    }

    /// Makes this many of the next GETs of objects fail.
    pub fn fail(&self, fault: ObjectFault, times: usize) {
        *self.state.faults.lock().unwrap() = vec![fault; times];
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Method and path of each request so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.requests.lock().unwrap().clone()
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for connections.
        drop(TcpStream::connect(self.address));
    }
}

impl State {
    fn put(&self, path: &str, bytes: Vec<u8>) {
        self.put_made(path, Arc::new(bytes));
    }

    fn put_made(&self, path: &str, content: Arc<dyn MadeObject>) {
        let mut objects = self.objects.lock().unwrap();
        let version = objects.get(path).map_or(1, |object| object.version + 1);
        objects.insert(path.to_owned(), Stored { content, version });
    }

    /// Answers until the client hangs up, or is hung up on.
    fn answer_all(&self, stream: impl Read + Write) {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream) {
            let line = format!("{} {}", request.method, request.path);
            self.requests.lock().unwrap().push(line);
            self.wait();
            let answered = self.answer(&request, stream.get_mut());
            if answered.is_none() || stream.get_mut().flush().is_err() {
                return;
            }
        }
    }

    fn wait(&self) {
        let delay = *self.delay.lock().unwrap();
        if !delay.is_zero() {
            // Nothing is sent: it is the time that counts.
            let (_sender, receiver) = sync_channel::<()>(0);
            let _ = receiver.recv_timeout(delay);
        }
    }

    /// `None`: the connection is to end.
    fn answer(&self, request: &Request, to: &mut dyn Write) -> Option<()> {
        let path = request.path.trim_start_matches('/');
        match request.method.as_str() {
            "GET" if !path.contains('/') => self.list(path, &request.query, to),
            "GET" | "HEAD" => self.get(request, path, to),
            "PUT" => {
                let has = |name: &str, value: &str| {
                    request.headers.get(name).is_some_and(|header| header == value)
                };
                // The second one is Google's.
                let is_new = has("if-none-match", "*") || has("x-goog-if-generation-match", "0");
                let exists = self.objects.lock().unwrap().contains_key(path);
                if is_new && exists {
                    return failed(to, "412 Precondition Failed", "PreconditionFailed");
                }
                self.put(path, request.body.clone());
                // Azure's clients want to be told that it was made.
                write!(to, "HTTP/1.1 201 Created\r\netag: \"1\"\r\ncontent-length: 0\r\n\r\n").ok()
            }
            _ => failed(to, "405 Method Not Allowed", "MethodNotAllowed"),
        }
    }

    fn get(&self, request: &Request, path: &str, to: &mut dyn Write) -> Option<()> {
        let is_head = request.method == "HEAD";
        let fault = if is_head { None } else { self.faults.lock().unwrap().pop() };
        match fault {
            Some(ObjectFault::Throttle) => return failed(to, "503 Slow Down", "SlowDown"),
            Some(ObjectFault::Deny) => return failed(to, "403 Forbidden", "AccessDenied"),
            Some(ObjectFault::Expire) => return failed(to, "400 Bad Request", "ExpiredToken"),
            Some(ObjectFault::Miss) => return failed(to, "404 Not Found", "NoSuchKey"),
            Some(ObjectFault::Cut) | None => {}
        }
        let Some(stored) = self.objects.lock().unwrap().get(path).cloned() else {
            if is_head {
                return write!(to, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").ok();
            }
            return failed(to, "404 Not Found", "NoSuchKey");
        };
        let etag = format!("\"{}\"", stored.version);
        if request.headers.get("if-match").is_some_and(|wanted| *wanted != etag) {
            return failed(to, "412 Precondition Failed", "PreconditionFailed");
        }
        let all = stored.content.bytes();
        let range = request.headers.get("range").and_then(|header| range_of(header, all));
        let (from, end) = range.unwrap_or((0, all));
        let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
        let mut head = format!(
            "HTTP/1.1 {status}\r\netag: {etag}\r\nlast-modified: Mon, 23 Nov 2026 02:00:00 GMT\r\n\
             content-length: {}\r\n",
            end - from
        );
        if range.is_some() {
            let _ = write!(head, "content-range: bytes {from}-{}/{all}\r\n", end - 1);
        }
        head.push_str("\r\n");
        to.write_all(head.as_bytes()).ok()?;
        if is_head {
            return Some(());
        }
        if fault == Some(ObjectFault::Cut) {
            let _ = stored.content.write(from..from + (end - from) / 2, to);
            return None;
        }
        stored.content.write(from..end, to).ok()
    }

    fn list(&self, bucket: &str, query: &str, to: &mut dyn Write) -> Option<()> {
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
        };
        let form = if value("comp").is_some() { &OF_AZURE } else { &OF_S3 };
        let prefix = format!("{bucket}/{}", value("prefix").unwrap_or_default());
        let after = value(form.token).map(|token| format!("{bucket}/{token}"));
        let objects = self.objects.lock().unwrap();
        let listed = objects.iter().filter(|(path, _)| {
            path.starts_with(&prefix) && after.as_ref().is_none_or(|after| *path > after)
        });
        let page: Vec<_> = listed.take(PAGE + 1).collect();
        let is_cut = page.len() > PAGE;
        let key = |path: &str| path[bucket.len() + 1..].to_owned();
        let entries: String = page
            .iter()
            .take(PAGE)
            .map(|(path, page)| (form.entry)(&key(path), page.version, page.content.bytes()))
            .collect();
        let next = if is_cut { key(page[PAGE - 1].0) } else { String::new() };
        let xml = (form.page)(&entries, &next);
        let length = xml.len();
        write!(to, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{xml}").ok()
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let target = words.next()?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = decoded(path);
    let query = query.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|header| header.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, query, headers, body })
}

fn failed(to: &mut dyn Write, status: &str, code: &str) -> Option<()> {
    let xml = format!("<Error><Code>{code}</Code><Message>as it was told</Message></Error>");
    write!(to, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{xml}", xml.len()).ok()
}

/// `bytes=FROM-LAST` as the begin and the end.
fn range_of(header: &str, all: u64) -> Option<(u64, u64)> {
    let (from, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let from = from.parse().ok().filter(|from| *from < all)?;
    let last = last.parse::<u64>().map_or(all, |last| last + 1);
    Some((from, last.min(all)))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap()
}

/// How a store writes a listing: the parameter of the next page's begin, an object by its key, version and
/// length, and a page of them, with where the next one begins.
struct Listing {
    token: &'static str,
    entry: fn(&str, u64, u64) -> String,
    page: fn(&str, &str) -> String,
}

/// S3's, which Google's is, too.
const OF_S3: Listing = Listing {
    token: "continuation-token",
    entry: |key, version, bytes| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-23T02:00:00.000Z</LastModified>\
             <ETag>\"{version}\"</ETag><Size>{bytes}</Size></Contents>"
        )
    },
    page: |entries, next| {
        let token = format!("<NextContinuationToken>{next}</NextContinuationToken>");
        let is_cut = !next.is_empty();
        let token = if next.is_empty() { "" } else { &token };
        format!(
            "<ListBucketResult><IsTruncated>{is_cut}</IsTruncated>{entries}{token}</ListBucketResult>"
        )
    },
};

/// Azure's, whose marks have no quotes here, but in answers.
const OF_AZURE: Listing = Listing {
    token: "marker",
    entry: |key, version, bytes| {
        format!(
            "<Blob><Name>{key}</Name><Properties><Last-Modified>Mon, 23 Nov 2026 02:00:00 GMT\
             </Last-Modified><Etag>{version}</Etag><Content-Length>{bytes}</Content-Length>\
             <Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
        )
    },
    page: |entries, next| {
        format!(
            "<EnumerationResults><Blobs>{entries}</Blobs><NextMarker>{next}</NextMarker>\
             </EnumerationResults>"
        )
    },
};

/// Objects of a listing's page.
const PAGE: usize = 1000;
