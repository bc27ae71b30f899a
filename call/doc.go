// Package call reads what a caller asks for: one request to run code, as JSON,
// or the refusal of what no runner would carry out.
//
// It holds every limit and check of a request by itself. What depends on a
// sandbox, a gateway or a session belongs to the runner, which refuses with the
// same type, codes and reasons.
package call
