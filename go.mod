module github.com/plimsoll-attest/plimsoll

go 1.26.0

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/in-toto/attestation v1.2.0
	google.golang.org/protobuf v1.36.12
)

require github.com/stretchr/testify v1.12.0 // indirect
