//! `/healthz`: all checks, or a named one.

use http::StatusCode;

use super::ServerResponse;
use super::body::text;
use crate::liveness::SyncLoopError;

pub(crate) fn respond(sync_loop: &Result<(), SyncLoopError>, name: &str, verbose: bool) -> ServerResponse {
    let well = Ok(());
    // In the order of the response.
    let checks = [("ping", &well), ("log", &well), ("syncloop", sync_loop)];
    let requested: Vec<_> = checks.iter().filter(|(other, _)| name.is_empty() || *other == name).collect();
    if requested.is_empty() {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    let failed = requested.iter().any(|(_, result)| result.is_err());
    let is_told = failed || (verbose && name.is_empty());
    if !is_told {
        return text(StatusCode::OK, "ok");
    }
    let line = |(name, result): &&(&str, &Result<(), SyncLoopError>)| match result {
        Ok(()) => format!("[+]{name} ok\n"),
        Err(_) if failed && !verbose => format!("[-]{name} failed: reason withheld\n"),
        Err(why) => format!("[-]{name} failed: {why}\n"),
    };
    let lines: String = requested.iter().map(line).collect();
    match failed {
        true => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}healthz check failed\n")),
        false => text(StatusCode::OK, format!("{lines}healthz check passed\n")),
    }
}
