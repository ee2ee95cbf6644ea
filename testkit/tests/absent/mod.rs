//! CRI calls that a fake runtime does not implement.

/// Calls that no test here expects.
macro_rules! absent {
    ($($call:ident($request:ident) -> $response:ident),* $(,)?) => { $(
        async fn $call(&self, _: cri::$request) -> Result<cri::$response, cri::Status> {
            Err(cri::Status::unimplemented(stringify!($call)))
        }
    )* };
}

macro_rules! absent_streams {
    ($($call:ident($request:ident) -> $response:ident),* $(,)?) => { $(
        async fn $call(&self, _: cri::$request) -> Result<cri::ResponseStream<cri::$response>, cri::Status> {
            Err(cri::Status::unimplemented(stringify!($call)))
        }
    )* };
}
