"""Refuses objects with the annotation `refuse`."""

import http.server
import json
import ssl


class Webhook(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        reason = (request["object"]["metadata"].get("annotations") or {}).get("refuse")
        response = {"uid": request["uid"], "allowed": reason is None}
        if reason is not None:
            response["status"] = {"code": 403, "message": f"refused: {reason}"}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/certificates/tls.crt", "/certificates/tls.key")
server = http.server.ThreadingHTTPServer(("", 8443), Webhook)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
