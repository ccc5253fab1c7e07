// Judges histories of `jepsen export` with Porcupine, a linearizability checker in Go.
//
//	porcupine register|lock FILE.edn...
//
// One line for each file. The exit code is 1 when one of them is not linearizable, and 2 when one
// could not be decided or read.
package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// How long one file may take.
const bound = time.Minute

// The value of a register that was never written, and the owner of a lock that nobody has.
const none = -1

type input struct {
	f       string
	a, b    int
	unknown bool
}

// A read says what it was answered; all else is its input.
var register = porcupine.Model{
	Init: func() interface{} { return none },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		value, op := state.(int), in.(input)
		switch op.f {
		case "read":
			return out.(int) == value, value
		case "write":
			return true, op.a
		default:
			if value == op.a {
				return true, op.b
			}
			return op.unknown, value
		}
	},
}

// What has an unknown outcome and cannot be done now was not done.
var lock = porcupine.Model{
	Init: func() interface{} { return none },
	Step: func(state, in, _ interface{}) (bool, interface{}) {
		holder, op := state.(int), in.(input)
		switch {
		case op.f == "acquire" && holder == none:
			return true, op.a
		case op.f != "acquire" && holder == op.a:
			return true, none
		default:
			return op.unknown || op.f == "close", holder
		}
	},
}

var line = regexp.MustCompile(`^\{:process (\d+), :type :(\w+), :f :(\w+), :value (nil|\d+|\[(\d+) (\d+)\])\}$`)

func number(text string) int {
	if text == "nil" || text == "" {
		return none
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

// Calls and returns of a file. What ended as info returns at the end, as porcupine asks for.
func read(path string) ([]porcupine.Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var events []porcupine.Event
	type call struct{ id, event int }
	open, id := map[int]call{}, 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			return nil, fmt.Errorf("not understood: %s", lines.Text())
		}
		process := number(m[1])
		if m[2] == "invoke" {
			in := input{f: m[3], a: number(m[5]), b: number(m[6])}
			if m[5] == "" {
				in.a = number(m[4])
			}
			open[process] = call{id, len(events)}
			events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.CallEvent, Value: in, Id: id})
			id++
			continue
		}
		begun := open[process]
		result := none
		if m[2] == "info" {
			in := events[begun.event].Value.(input)
			in.unknown = true
			events[begun.event].Value = in
		} else if m[5] == "" {
			result = number(m[4])
		}
		events = append(events, porcupine.Event{ClientId: process, Kind: porcupine.ReturnEvent, Value: result, Id: begun.id})
	}
	return events, lines.Err()
}

func main() {
	models := map[string]porcupine.Model{"register": register, "lock": lock}
	if len(os.Args) < 3 || models[os.Args[1]].Step == nil {
		fmt.Fprintln(os.Stderr, "porcupine register|lock FILE.edn...")
		os.Exit(2)
	}
	code := 0
	for _, path := range os.Args[2:] {
		events, err := read(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
		result := porcupine.CheckEventsTimeout(models[os.Args[1]], events, bound)
		fmt.Printf("%s: %s (%d operations)\n", path, result, len(events)/2)
		if result == porcupine.Illegal {
			code = 1
		} else if result == porcupine.Unknown && code == 0 {
			code = 2
		}
	}
	os.Exit(code)
}
