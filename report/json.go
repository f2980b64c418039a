package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes one JSON object a line.
func WriteJSON(w io.Writer, results ...Result) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range results {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("write result %q: %w", r.Name, err)
		}
	}
	return nil
}

// ReadJSON reads what WriteJSON wrote. It stops at the first line that is not
// a Result and returns what came before it together with the error.
func ReadJSON(r io.Reader) ([]Result, error) {
	var results []Result
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		var res Result
		if err := json.Unmarshal(sc.Bytes(), &res); err != nil {
			return results, fmt.Errorf("read result, line %d: %w", n, err)
		}
		results = append(results, res)
	}
	return results, sc.Err()
}
