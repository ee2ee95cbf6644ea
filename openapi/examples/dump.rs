//! Writes every document to a directory and prints its size and generation time: `cargo run --release -p openapi
//! --example dump -- DIRECTORY`.

use std::path::Path;
use std::time::Instant;

use openapi::{Api, DescriptionSource, Encoding, v2, v3};

struct UpstreamTexts(descriptions::Descriptions);

impl DescriptionSource for UpstreamTexts {
    fn type_description(&self, ty: &str) -> Option<&str> {
        self.0.of_type(ty)
    }

    fn field_description(&self, ty: &str, field: &str) -> Option<&str> {
        self.0.of_field(ty, field)
    }
}

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "openapi-documents".to_string());
    let directory = Path::new(&directory);
    std::fs::create_dir_all(directory)?;
    timed("schema table", || api::schema::schema().types().len());
    let texts = UpstreamTexts(timed("descriptions", descriptions::descriptions));
    let api = Api { version: "v1.37.0", kinds: kinds::ALL, texts: &texts, extras: &[] };
    for (encoding, suffix) in [(Encoding::Json, "json"), (Encoding::Protobuf, "pb")] {
        let bytes = timed(suffix, || v2::document(&api, encoding));
        println!("v2.{suffix}: {} bytes", bytes.len());
        timed("etag", || openapi::etag(&bytes));
        std::fs::write(directory.join(format!("v2.{suffix}")), bytes)?;
    }
    let index = timed("index", || v3::index(&api));
    std::fs::write(directory.join("v3.json"), api::json::encode(&index, None))?;
    for name in index.map("paths").keys() {
        for (encoding, suffix) in [(Encoding::Json, "json"), (Encoding::Protobuf, "pb")] {
            let bytes = timed(name, || v3::document(&api, name, encoding)).unwrap_or_default();
            println!("{name}.{suffix}: {} bytes", bytes.len());
            std::fs::write(directory.join(format!("v3_{}.{suffix}", name.replace('/', "_"))), bytes)?;
        }
    }
    Ok(())
}

fn timed<T>(what: &str, make: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let made = make();
    println!("{what}: {:?}", start.elapsed());
    made
}
