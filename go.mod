module github.com/plimsoll-attest/plimsoll

go 1.26.0

require (
	filippo.io/edwards25519 v1.2.0
	github.com/go-json-experiment/json v1.27.2
	github.com/in-toto/attestation v1.2.0
	github.com/secure-systems-lab/go-securesystemslib v0.11.1
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
